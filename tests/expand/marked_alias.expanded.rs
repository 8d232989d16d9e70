/// Counts a visit.
/// # Idempotency …
async fn count(
    tx: impl __private::SourceOf<::idempotent_runtime::Lent<'_>, Tx<'static>>,
    visitor: Option<&str>,
    page: u64,
) -> __private::Result<
    ::idempotent_runtime::Outcome<<Answer as __private::HandlerResult>::Ok>,
    <Answer as __private::HandlerResult>::Err,
> {
    let handler = {
        static HANDLER: ::idempotent_runtime::Handler = __private::handler(__private::Spec {
            consumer: "shop.count",
            key: __private::Template::new("{visitor}/{page}", &["", "/", ""]),
            missing: __private::Missing::Process,
            function: __private::concat!(__private::module_path!(), "::", "count"),
            file: __private::file!(),
            line: __private::line!(),
            ..__private::Spec::DEFAULT
        });
        __private::inventory::submit! {
            __private::Registered(& HANDLER)
        }
        &HANDLER
    };
    let source = __private::SourceOf::source(tx);
    let mut session = __private::Message::new(
            handler,
            __private::Writer::key(handler)
                .optional("visitor", &visitor)
                .optional("page", &page)
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
                if let __private::Some(early) = __private::None::<Answer> {
                    return early;
                }
                let tx: &mut Tx<'_> = transaction;
                let visitor = visitor;
                let _ = &visitor;
                let page = page;
                let _ = &page;
                '_body: {
                    sqlx::query("UPDATE page SET visits = visits + 1 WHERE id = ?")
                        .bind(page)
                        .execute(&mut **tx)
                        .await
                }
            },
            span,
        )
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
