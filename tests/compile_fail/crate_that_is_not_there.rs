//! The path of the runtime leads nowhere.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", crate = facade::idempotency)]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
