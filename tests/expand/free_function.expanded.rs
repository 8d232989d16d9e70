/// Adds the credit to the account and returns the new balance in cents.
/// # Idempotency …
pub async fn grant_credit<
    Lent,
    Via: ::idempotent_runtime::IntoSourceFor<Lent, __private::Postgres>,
>(tx: Via, event: &CreditGranted) -> sqlx::Result<::idempotent_runtime::Outcome<i64>> {
    let handler = {
        static HANDLER: ::idempotent_runtime::Handler = __private::handler(__private::Spec {
            consumer: "shop.grant_credit",
            key: __private::Template::new("{event.id}", &["", ""]),
            function: __private::concat!(
                __private::module_path!(), "::", "grant_credit"
            ),
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
                if let __private::Some(early) = __private::None::<sqlx::Result<i64>> {
                    return early;
                }
                let tx: &mut PgTransaction<'_> = transaction;
                let event = event;
                let _ = &event;
                '_body: {
                    sqlx::query_scalar(
                            "UPDATE account SET cents = cents + $1 RETURNING cents",
                        )
                        .bind(event.cents)
                        .fetch_one(&mut **tx)
                        .await
                }
            },
            span,
        )
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
