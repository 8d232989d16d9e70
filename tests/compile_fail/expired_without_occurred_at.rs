//! Without a timestamp nothing is too old.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    version: i64,
}

#[idempotent(key = "{event.id}", expired = "skip")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
