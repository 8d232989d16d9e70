/// Adds the credit to the account and returns the new balance in cents.
#[idempotent(key = "{event.id}")]
pub async fn grant_credit(tx: &mut PgTransaction<'_>, event: &CreditGranted) -> sqlx::Result<i64> {
    sqlx::query_scalar("UPDATE account SET cents = cents + $1 RETURNING cents")
        .bind(event.cents)
        .fetch_one(&mut **tx)
        .await
}
