//! The transaction is taken by shared reference.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(tx: &SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
