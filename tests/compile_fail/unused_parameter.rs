//! M12: an unused parameter is still reported, and one of the template is not unused.

#![deny(unused_variables, unused_mut)]

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(tx: &mut SqliteTransaction<'_>, event: &Event, nobody: u8, mut unchanged: u8) -> sqlx::Result<u8> {
    Ok(unchanged)
}

fn main() {}
