#[idempotent(key = "{message.id()}", missing = "reject")]
async fn project<'m, DB, M>(tx: &mut Transaction<'_, DB>, message: &'m M) -> sqlx::Result<&'m str>
where
    DB: Storage,
    M: Message + Sync,
{
    DB::insert(tx, message.body()).await?;
    Ok(message.body())
}
