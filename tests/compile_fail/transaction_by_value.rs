//! The transaction is taken by value.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(mut tx: SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(&mut *tx).await?;
    Ok(())
}

fn main() {}
