//! A module that a program has twice, as one does that lib.rs and main.rs both declare.

use idempotent_runtime::{Error, idempotent};
use sqlx::SqliteTransaction;

#[idempotent(key = "{id}")]
pub(crate) async fn settle(_tx: &mut SqliteTransaction<'_>, id: &str) -> Result<(), Error> {
    Ok(())
}
