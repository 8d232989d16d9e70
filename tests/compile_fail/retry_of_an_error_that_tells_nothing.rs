//! Only some errors are worth another run.

use idempotent_runtime::{Error, idempotent};
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

struct Problem;

impl From<Error> for Problem {
    fn from(_: Error) -> Self {
        Self
    }
}

#[idempotent(key = "{event.id}", retry = 3)]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> Result<(), Problem> {
    let _ = event;
    Ok(())
}

fn main() {}
