#[cfg_attr(doc, doc = " # Idempotency …")]
async fn ship(
    &self,
    tx: impl ::idempotent_runtime::IntoSource<'_, __private::MySql>,
    order: Order,
) -> Result<::idempotent_runtime::Outcome<()>, ShippingError> {
    let handler = {
        static HANDLER: ::idempotent_runtime::Handler = __private::handler(__private::Spec {
            consumer: "shop.ship",
            consumer_chosen: false,
            key: __private::Template::new(
                "{self.region}:{order.id}:{order.version}",
                &["", ":", ":", ""],
            ),
            sender: __private::Template::new("", &[""]),
            retention_secs: 2592000,
            horizon_secs: __private::Some(259200),
            missing: __private::Missing::Reject,
            function: __private::concat!(__private::module_path!(), "::", "ship"),
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
                .part("self.region", &self.region)
                .part("order.id", &order.id)
                .part("order.version", &order.version)
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
        if let __private::Some(early) = __private::None::<Result<(), ShippingError>> {
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
    }
        .await;
    let outcome = run.finish(result).await;
    return session.close(outcome).await;
}
