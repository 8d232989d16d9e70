#[idempotent(key = "{self.region}:{order.id}:{order.version}", retention = "30d", horizon = "3d")]
async fn ship(&self, tx: &mut MySqlTransaction<'_>, mut order: Order) -> Result<(), ShippingError> {
    order.carrier = self.carrier.clone();
    order.save(tx).await?;
    Ok(())
}
