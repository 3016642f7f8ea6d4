package migrations_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/migrations"
)

// rule is a pattern that a migration after the baseline must not match, unless it also matches another one.
type rule struct {
	breaks *regexp.Regexp
	unless *regexp.Regexp // nil: always
	why    string
}

var rules = []rule{
	{regexp.MustCompile(`\bCREATE (UNIQUE )?INDEX (IF|[a-z])`), nil, "an index is created concurrently"},
	{regexp.MustCompile(`\bDROP INDEX (IF|[a-z])`), nil, "an index is dropped concurrently"},
	{regexp.MustCompile(`\bCONCURRENTLY\b`), regexp.MustCompile(`(?s)\+goose NO TRANSACTION.*SET lock_timeout = 0;.*RESET lock_timeout;`), "a concurrent change runs outside a transaction, and waits for locks as long as it takes: -- +goose NO TRANSACTION, SET lock_timeout = 0, and RESET lock_timeout at the end"},
	{regexp.MustCompile(`\bCREATE (UNIQUE )?INDEX CONCURRENTLY\b`), regexp.MustCompile(`(?s)DROP INDEX CONCURRENTLY IF EXISTS.*CREATE (UNIQUE )?INDEX CONCURRENTLY`), "an interrupted run leaves an invalid index: drop it first"},
	{regexp.MustCompile(`(?s)\bCONCURRENTLY\b.*\b(ALTER|UPDATE|INSERT|DELETE)\b`), nil, "a concurrent change is alone in its file"},
	{regexp.MustCompile(`\bRENAME\b`), nil, "an older program knows the old name: add, move over, and drop in a later version"},
	{regexp.MustCompile(`(?s)\b(ADD COLUMN|CREATE TABLE)\b.*\bDROP (COLUMN|TABLE)\b|\bDROP (COLUMN|TABLE)\b.*\b(ADD COLUMN|CREATE TABLE)\b`), nil, "additions and drops are in separate versions"},
	{regexp.MustCompile(`\bALTER COLUMN [a-z_]+ (SET DATA )?TYPE\b`), nil, "another type rewrites the table under a lock"},
	{regexp.MustCompile(`\bSET NOT NULL\b`), nil, "it reads the table under a lock: add a CHECK (… IS NOT NULL) NOT VALID"},
	{regexp.MustCompile(`\bADD CONSTRAINT [a-z_]+ (CHECK|FOREIGN KEY)\b[^;]*;`), regexp.MustCompile(`\bADD CONSTRAINT [a-z_]+ (CHECK|FOREIGN KEY)\b[^;]*NOT VALID;`), "a constraint is added NOT VALID"},
	{regexp.MustCompile(`(?s)\bNOT VALID\b.*\bVALIDATE CONSTRAINT\b`), nil, "a constraint is validated in a later version than it is added"},
	{regexp.MustCompile(`\bADD COLUMN [^;]*DEFAULT (clock_timestamp|random|gen_random_uuid|nextval)`), nil, "such a default rewrites the table under a lock"},
	{regexp.MustCompile(`\bUPDATE [a-z_]+ (SET|AS)|\bDELETE FROM\b`), nil, "upkeep changes many rows, in batches; a migration does not"},
}

// broken returns the reasons why a migration must not be applied while older programs serve.
func broken(sql string) (all []string) {
	for _, r := range rules {
		if r.breaks.MatchString(sql) && (r.unless == nil || !r.unless.MatchString(sql)) {
			all = append(all, r.why)
		}
	}
	return all
}

func TestMigrationsAfterTheBaselineKeepTheRules(t *testing.T) {
	t.Parallel()
	for _, f := range schemaFiles(t) {
		number, _, _ := strings.Cut(filepath.Base(f.name), "_")
		if v, err := strconv.Atoi(number); err != nil || v <= migrations.Baseline {
			continue
		}
		text, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, why := range broken(string(text)) {
			t.Errorf("%s: %s", f.name, why)
		}
	}
}

func TestRulesOfMigrations(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]int{
		"ALTER TABLE tenant ADD COLUMN note text;":                                    0,
		"CREATE TABLE extra (tenant_id int NOT NULL, PRIMARY KEY (tenant_id));":       0,
		"ALTER TABLE tenant DROP COLUMN note;":                                        0,
		"ALTER TABLE tenant ADD CONSTRAINT tenant_note CHECK (note <> '') NOT VALID;": 0,
		"ALTER TABLE tenant VALIDATE CONSTRAINT tenant_note;":                         0,
		"-- +goose NO TRANSACTION\n-- +goose Up\nSET lock_timeout = 0;\nDROP INDEX CONCURRENTLY IF EXISTS tenant_note;\nCREATE INDEX CONCURRENTLY tenant_note ON tenant (note);\nRESET lock_timeout;": 0,

		"CREATE INDEX tenant_note ON tenant (note);":              1,
		"DROP INDEX tenant_note;":                                 1,
		"CREATE INDEX CONCURRENTLY tenant_note ON tenant (note);": 2,
		"-- +goose NO TRANSACTION\nSET lock_timeout = 0;\nDROP INDEX CONCURRENTLY tenant_note;\nRESET lock_timeout;\nALTER TABLE tenant ADD COLUMN a int;": 1,
		"ALTER TABLE tenant RENAME COLUMN note TO text;":                                                         1,
		"ALTER TABLE tenant ADD COLUMN a int, DROP COLUMN b;":                                                    1,
		"ALTER TABLE tenant ALTER COLUMN a TYPE bigint;":                                                         1,
		"ALTER TABLE tenant ALTER COLUMN a SET NOT NULL;":                                                        1,
		"ALTER TABLE tenant ADD CONSTRAINT a CHECK (a > 0);":                                                     1,
		"ALTER TABLE tenant ADD CONSTRAINT a CHECK (a > 0) NOT VALID; ALTER TABLE tenant VALIDATE CONSTRAINT a;": 1,
		"ALTER TABLE tenant ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid();":                              1,
		"UPDATE tenant SET a = 1;":                                                                               1,
	} {
		if got := broken(sql); len(got) != want {
			t.Errorf("%s\ngot %q, want %d", sql, got, want)
		}
	}
}
