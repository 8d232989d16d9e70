//! The marked parameter has no type that names a database.

use idempotent_runtime::idempotent;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}")]
async fn handler(#[tx] _tx: &mut impl Sized, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
