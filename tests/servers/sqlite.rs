//! SQLite: files in temporary folders.

use sqlx::{Connection as _, SqliteConnection};

use crate::database::Database;

pub(crate) fn fresh_database() -> Database {
    match tempfile::Builder::new().prefix("idempotent-sqlite-").tempdir() {
        Ok(folder) => Database::in_folder(folder),
        Err(error) => panic!("no temporary folder: {error}"),
    }
}

/// Name and version of the SQLite that is built into the tests.
///
/// # Errors
///
/// The database's.
pub async fn sqlite_version() -> Result<String, sqlx::Error> {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    sqlx::query_scalar("SELECT 'SQLite ' || sqlite_version()").fetch_one(&mut connection).await
}
