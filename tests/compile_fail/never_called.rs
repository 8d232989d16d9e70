//! M12: a handler that is never called is still reported.

#![deny(dead_code)]

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

pub struct Event {
    pub id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
