//! The transaction is behind an alias, which the macro cannot look into.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

type Tx<'a> = SqliteTransaction<'a>;

#[idempotent(key = "{event.id}")]
async fn handler(_tx: &mut Tx<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
