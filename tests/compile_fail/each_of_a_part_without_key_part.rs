//! What an item gives to the key is as stable as elsewhere.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event}", each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>) -> sqlx::Result<()> {
    drop(events);
    Ok(())
}

fn main() {}
