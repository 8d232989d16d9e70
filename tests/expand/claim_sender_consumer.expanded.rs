#[cfg_attr(doc, doc = " # Idempotency …")]
async fn charge(
    provider: &Provider,
    tx: impl ::idempotent_runtime::IntoSource<'_, __private::Postgres>,
    Delivery { event, .. }: &Delivery,
) -> anyhow::Result<::idempotent_runtime::Outcome<Receipt>> {
    let handler = {
        static HANDLER: ::idempotent_runtime::Handler = __private::handler(__private::Spec {
            consumer: "billing.charge",
            consumer_chosen: true,
            key: __private::Template::new("{event.id}", &["", ""]),
            sender: __private::Template::new("{event.source}", &["", ""]),
            function: __private::concat!(__private::module_path!(), "::", "charge"),
            file: __private::file!(),
            line: __private::line!(),
            ..__private::Spec::DEFAULT
        });
        __private::inventory::submit! {
            __private::Registered(& HANDLER)
        }
        &HANDLER
    };
    let source = __private::IntoSourceFor::into_source(tx);
    let mut session = __private::Message::new(
            handler,
            __private::Writer::key(handler).part("event.id", &event.id).finish(),
            __private::Writer::sender(handler)
                .part("event.source", &event.source)
                .finish(),
        )
        .open(source);
    let mut refused = __private::None;
    let mut run = loop {
        refused = match session.begin(refused).await {
            __private::Ok(run) => break run,
            __private::Err(why) => {
                match why.settled() {
                    __private::Ok(outcome) => return outcome,
                    __private::Err(why) => __private::Some(why),
                }
            }
        };
    };
    let span = run.span();
    let (transaction, claim) = run.parts();
    let result = __private::Instrument::instrument(
            async move {
                if let __private::Some(early) = __private::None::<
                    anyhow::Result<Receipt>,
                > {
                    return early;
                }
                let provider = provider;
                let tx: &mut PgTransaction<'_> = transaction;
                let event = event;
                let _ = &event;
                let claim: &Claim = __private::claim(claim);
                {
                    let receipt = provider
                        .charge(event.cents, claim.idempotency_key("charge"))
                        .await?;
                    receipt.save(tx).await?;
                    Ok(receipt)
                }
            },
            span,
        )
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
