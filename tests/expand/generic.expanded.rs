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
            consumer_chosen: false,
            key: __private::Template::new("{message.id()}", &["", ""]),
            sender: __private::Template::new("", &[""]),
            retention_secs: 604800,
            horizon_secs: __private::None,
            missing: __private::Missing::Reject,
            function: __private::concat!(__private::module_path!(), "::", "project"),
            file: __private::file!(),
            line: __private::line!(),
        });
        __private::inventory::submit! {
            __private::Registered(& HANDLER)
        }
        &HANDLER
    };
    let source = __private::Into::into(tx);
    let mut session = handler
        .open(
            source,
            __private::Writer::key(handler)
                .optional("message.id()", &message.id())
                .finish(),
            __private::Writer::sender(handler).finish(),
        );
    let mut run = loop {
        let settled = match session.begin().await {
            __private::Ok(run) => break run,
            __private::Err(settled) => settled,
        };
        if let __private::Some(outcome) = settled.into_outcome() {
            return session.close(outcome).await;
        }
    };
    let transaction = run.transaction();
    let result = async move {
        if let __private::Some(early) = __private::None::<sqlx::Result<&'m str>> {
            return early;
        }
        let tx: &mut Transaction<'_, DB> = transaction;
        let message = message;
        let _ = &message;
        {
            DB::insert(tx, message.body()).await?;
            Ok(message.body())
        }
    }
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
