//! The caller takes the outcome for the value.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<i64> {
    Ok(1)
}

async fn caller(pool: &sqlx::SqlitePool, event: &Event) -> sqlx::Result<()> {
    let balance: i64 = handler(pool, event).await?;
    println!("{balance}");
    Ok(())
}

fn main() {}
