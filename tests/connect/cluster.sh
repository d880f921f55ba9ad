# A Postgres primary with TLS and one role per authentication method, and a standby of it, private to one
# test process. It lives until standard input ends, which the death of the starter guarantees.
# Arguments: folder, primary port, standby port, folder of the Postgres programs.
set -eu
dir=$1 port=$2 standby_port=$3
PATH=$4:$PATH
umask 077
mkdir "$dir"
cd "$dir"
stop() {
    pg_ctl -D standby -m immediate stop >/dev/null 2>&1 || true
    pg_ctl -D primary -m immediate stop >/dev/null 2>&1 || true
    cd /
    rm -rf "$dir"
}
trap stop EXIT

key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
openssl req -x509 $key -days 2 -subj /CN=ca -keyout ca.key -out ca.crt 2>/dev/null
openssl req -x509 $key -days 2 -subj /CN=other -keyout other.key -out other.crt 2>/dev/null
printf 'subjectAltName=IP:127.0.0.1' > san
for leaf in server certified; do
    openssl req $key -subj /CN=$leaf -keyout $leaf.key -out $leaf.csr 2>/dev/null
    openssl x509 -req -in $leaf.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile san -out $leaf.crt 2>/dev/null
done

initdb -D primary -A trust -U postgres --no-sync -E UTF8 --locale=C >/dev/null
cat > primary/pg_hba.conf <<HBA
local     all,replication postgres trust
local     all trusted,limited trust
local     all peered peer
local     all all scram-sha-256
host      all trusted 127.0.0.1/32 trust
host      all clear 127.0.0.1/32 password
host      all hashed 127.0.0.1/32 md5
host      all scrammed,unicode,plain 127.0.0.1/32 scram-sha-256
hostssl   all certified 127.0.0.1/32 cert
hostnossl all unencrypted 127.0.0.1/32 trust
HBA
cat >> primary/postgresql.conf <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
wal_level = logical
max_wal_senders = 20
max_replication_slots = 20
fsync = off
ssl = on
ssl_cert_file = '$dir/server.crt'
ssl_key_file = '$dir/server.key'
ssl_ca_file = '$dir/ca.crt'
CONF
pg_ctl -D primary -w -l primary.log -o "-p $port" start >/dev/null
psql -q -v ON_ERROR_STOP=1 -h "$dir" -p "$port" -U postgres <<SQL
CREATE DATABASE app;
CREATE ROLE trusted LOGIN REPLICATION;
CREATE ROLE certified LOGIN REPLICATION;
CREATE ROLE unencrypted LOGIN REPLICATION;
CREATE ROLE stranger LOGIN REPLICATION;
SET password_encryption = 'md5';
CREATE ROLE hashed LOGIN REPLICATION PASSWORD 'canary';
SET password_encryption = 'scram-sha-256';
CREATE ROLE clear LOGIN REPLICATION PASSWORD 'canary';
CREATE ROLE scrammed LOGIN REPLICATION PASSWORD 'canary';
CREATE ROLE unicode LOGIN REPLICATION PASSWORD 'canär²';
CREATE ROLE plain LOGIN PASSWORD 'canary';
\c app
CREATE TABLE t (id int PRIMARY KEY, body text);
GRANT ALL ON t TO trusted;
CREATE PUBLICATION "p""q" FOR TABLE t;
SQL
pg_basebackup -D standby --no-sync -R -c fast -h "$dir" -p "$port" -U postgres
pg_ctl -D standby -w -l standby.log -o "-p $standby_port" start >/dev/null
echo ready
cat >/dev/null
