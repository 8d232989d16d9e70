//! `missing` does not make a float a part of a key.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: Option<f64>,
}

#[idempotent(key = "{event.id}", missing = "reject")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
