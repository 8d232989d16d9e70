//! MariaDB: how a private server is set up, and what creates and drops a database.

use crate::database::Kind;
use crate::process::{Plan, find_program};
use crate::server::{Engine, Keeps};

pub(crate) static ENGINE: Engine = Engine {
    kind: Kind::Mariadb,
    variable: "IDEMPOTENT_TEST_MYSQL",
    log_variable: "IDEMPOTENT_TEST_MYSQL_LOG",
    install: "apt-get install -y mariadb-server",
    plan,
    address: "mysql://idempotent@127.0.0.1/mysql?ssl-mode=disabled",
    version: "SELECT CONCAT(IF(VERSION() LIKE '%MariaDB%', 'MariaDB ', 'MySQL '), VERSION())",
    create,
    close: Some(close),
    drop: |name| format!("DROP DATABASE IF EXISTS {name}"),
    log_of: |log, _database| log.to_owned(),
};

/// The installation's own accounts need the operating system's accounts of the same name; the tests get one more. A
/// server that starts deletes all temporary tables in its `tmpdir`, so none may share it, not even while it is installed.
const PREPARE: &str = r#"
printf "CREATE USER IF NOT EXISTS idempotent@'127.0.0.1' IDENTIFIED BY '%s';\n" "$password" >init.sql
printf "GRANT ALL ON *.* TO idempotent@'127.0.0.1' WITH GRANT OPTION;\n" >>init.sql
"$install" --no-defaults --datadir="$folder/data" --tmpdir="$folder" --skip-test-db \
    --auth-root-authentication-method=socket --innodb-log-file-size=32M --innodb-flush-log-at-trx-commit=0 \
    --innodb-doublewrite=0 --innodb-use-native-aio=0
"#;

/// Nothing survives a crash, so nothing is synced, and nothing is kept for replicas.
const SERVE: &str = r#"
exec "$server" --no-defaults --datadir="$folder/data" --tmpdir="$folder" --init-file="$folder/init.sql" \
    --socket="$folder/socket" --pid-file="$folder/pid" --port="$port" --bind-address=127.0.0.1 --skip-name-resolve \
    --max-connections=300 --table-open-cache=400 --skip-log-bin --innodb-buffer-pool-size=64M \
    --innodb-log-file-size=32M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-use-native-aio=0 \
    $keeps
"#;

/// For a server that is killed and started again: what it has acknowledged is in the operating system's hands, and pages
/// are never half old.
const DURABLE: &str = "--innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=1";

/// What a server of a few gigabytes has, beside the defaults.
const PRODUCTION: &str = "--innodb-flush-log-at-trx-commit=1 --innodb-doublewrite=1 --innodb-buffer-pool-size=2G \
    --innodb-log-file-size=1G";

fn plan(port: u16, password: &str, keeps: Keeps) -> Option<Plan> {
    let folders = ["/usr/sbin".into(), "/usr/local/sbin".into(), "/usr/libexec".into()];
    let server = find_program(&["mariadbd"], &folders)?;
    let install = find_program(&["mariadb-install-db", "mysql_install_db"], &folders)?;
    Some(Plan {
        name: "mariadb",
        account: "mysql",
        environment: vec![
            ("server", server.into()),
            ("install", install.into()),
            ("port", port.to_string().into()),
            ("password", password.to_owned().into()),
            ("keeps", keeps.choose(DURABLE, PRODUCTION).into()),
        ],
        prepare: PREPARE,
        serve: SERVE,
        // An orderly shutdown takes a second, for files that are thrown away.
        stop_signal: "KILL",
        restarts: keeps == Keeps::WhenKilled,
    })
}

/// The default collation is what an application most likely has: a bad one for keys, since `K` equals `k` in it.
fn create(name: &str, collation: Option<&str>) -> String {
    format!("CREATE DATABASE {name} COLLATE {}", collation.unwrap_or("utf8mb4_general_ci"))
}

/// A forgotten connection's open transaction would keep DROP waiting.
fn close(name: &str) -> String {
    format!("SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = '{name}'")
}
