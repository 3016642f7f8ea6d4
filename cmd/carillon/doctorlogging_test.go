package main

import (
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestDoctorWarnsOfLoggedParameters(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		`log_min_duration_statement = '1s'`: "warning",
		`log_parameter_max_length = 0`:      "ok",
	} {
		pool := postgrestest.Database(t)
		if _, err := pool.Exec(t.Context(), `ALTER DATABASE `+pool.Config().ConnConfig.Database+` SET `+setting); err != nil {
			t.Fatal(err)
		}
		pool.Reset() // the setting counts from the next session on
		if f := examineLogging(t.Context(), pool); f.Status != want || (want == "ok") != (f.Remedy == "") {
			t.Errorf("%s: got %+v, want %s", setting, f, want)
		}
	}
}
