/// Counts a visit.
#[idempotent(key = "{visitor}/{page}", missing = "process")]
async fn count(#[tx] tx: &mut Tx<'_>, visitor: Option<&str>, page: u64) -> Answer {
    sqlx::query("UPDATE page SET visits = visits + 1 WHERE id = ?").bind(page).execute(&mut **tx).await
}
