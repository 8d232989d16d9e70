#[cfg_attr(doc, doc = " # Idempotency …")]
async fn project<'m, DB, M>(
    tx: impl ::idempotent_runtime::IntoSource<'_, DB>,
    message: &'m M,
) -> sqlx::Result<::idempotent_runtime::Outcome<&'m str>>
where
    DB: Storage,
    M: Message + Sync,
{
    let handler = {
        static HANDLER: ::idempotent_runtime::Handler = __private::handler(__private::Spec {
            consumer: "shop.project",
            key: __private::Template::new("{message.id()}", &["", ""]),
            function: __private::concat!(__private::module_path!(), "::", "project"),
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
                .optional("message.id()", &message.id())
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
                    sqlx::Result<&'m str>,
                > {
                    return early;
                }
                let tx: &mut Transaction<'_, DB> = transaction;
                let message = message;
                let _ = &message;
                {
                    DB::insert(tx, message.body()).await?;
                    Ok(message.body())
                }
            },
            span,
        )
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
