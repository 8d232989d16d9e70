//! `?` on an error that the handler does not return.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    event.id.parse::<u64>()?;
    Ok(())
}

fn main() {}
