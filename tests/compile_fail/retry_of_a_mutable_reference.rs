//! What one run has changed, the next one would find changed.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", retry = 3)]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event, done: &mut u32) -> sqlx::Result<()> {
    let _ = event;
    *done += 1;
    Ok(())
}

fn main() {}
