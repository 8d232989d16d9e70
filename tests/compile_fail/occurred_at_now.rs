//! The time of the delivery is not the time of the message.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    created: i64,
}

#[idempotent(key = "{event.id}", occurred_at = "SystemTime::now()")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
