#[cfg_attr(doc, doc = " # Idempotency …")]
async fn ship(
    &self,
    tx: impl ::idempotent_runtime::IntoSource<'_, __private::MySql>,
    order: Order,
) -> Result<::idempotent_runtime::Outcome<()>, ShippingError> {
    let handler = {
        static HANDLER: ::idempotent_runtime::Handler = __private::handler(__private::Spec {
            consumer: "shop.ship",
            key: __private::Template::new(
                "{self.region}:{order.id}:{order.version}",
                &["", ":", ":", ""],
            ),
            retention_secs: 2592000,
            horizon_secs: __private::Some(259200),
            function: __private::concat!(__private::module_path!(), "::", "ship"),
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
            __private::Writer::key(handler)
                .part("self.region", &self.region)
                .part("order.id", &order.id)
                .part("order.version", &order.version)
                .finish(),
            __private::Writer::sender(handler).finish(),
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
    let transaction = run.transaction();
    let result = __private::Instrument::instrument(
            async move {
                if let __private::Some(early) = __private::None::<
                    Result<(), ShippingError>,
                > {
                    return early;
                }
                let tx: &mut MySqlTransaction<'_> = transaction;
                let mut order = order;
                let _ = &order;
                {
                    order.carrier = self.carrier.clone();
                    order.save(tx).await?;
                    Ok(())
                }
            },
            span,
        )
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
