//! M12: an undocumented handler is still reported.

#![deny(missing_docs)]

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

#[idempotent(key = "{id}")]
pub async fn handler(_tx: &mut SqliteTransaction<'_>, id: u8) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
