//! An option that there is not.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", table = "messages")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
