//! Each run of the body has arguments of its own.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", retry = 3)]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: Event) -> sqlx::Result<()> {
    drop(event);
    Ok(())
}

fn main() {}
