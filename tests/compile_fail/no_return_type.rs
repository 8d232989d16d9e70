//! The handler returns nothing.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) {
    drop(event.id.clone());
}

fn main() {}
