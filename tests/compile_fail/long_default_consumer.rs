//! A function whose name makes the default name too long.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_handler_(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
