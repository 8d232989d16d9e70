#[idempotent(key = "{event.id}", sender = "{event.source}", consumer = "billing.charge")]
async fn charge(
    provider: &Provider,
    tx: &mut PgTransaction<'_>,
    Delivery { event, .. }: &Delivery,
    claim: &Claim,
) -> anyhow::Result<Receipt> {
    let receipt = provider.charge(event.cents, claim.idempotency_key("charge")).await?;
    receipt.save(tx).await?;
    Ok(receipt)
}
