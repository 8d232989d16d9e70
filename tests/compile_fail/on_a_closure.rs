//! The attribute stands on a closure.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

fn main() {
    let _handler =
        #[idempotent(key = "{event.id}")]
        async |tx: &mut SqliteTransaction<'_>, event: &Event| -> sqlx::Result<()> { Ok(()) };
}
