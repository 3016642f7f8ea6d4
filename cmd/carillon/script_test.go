package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

// TestMain lets scripts run the program itself as a command, and tests as a process.
func TestMain(m *testing.M) {
	switch os.Getenv("CARILLON_TEST") {
	case "main":
		main()
	case "stuck":
		stuck()
	}
	if err := os.Setenv("PGCONNECT_TIMEOUT", "10"); err != nil { // connecting may take long while other tests run
		panic(err)
	}
	testscript.Main(postgrestest.Runner{M: m}, map[string]func(){"carillon": main})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("EMPTY_DATABASE", postgrestest.EmptyURL(t))
			return nil
		},
	})
}

// stuck starts like main, and never ends.
func stuck() {
	ctx := interruptible()
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println("stopping")
	select {}
}
