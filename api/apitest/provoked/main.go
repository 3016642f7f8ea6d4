// Command provoked tells which errors of the OpenAPI document no test has provoked: go run ./api/apitest/provoked FILE,
// where FILE is what tests wrote with CARILLON_PROVOKED=FILE. It exits with 1 where there are any.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/carillonhq/carillon/api/apitest"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: provoked FILE")
	}
	seen, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	missing, err := apitest.Unprovoked(strings.Split(string(seen), "\n"))
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("openapi.yaml documents %d errors that no test provokes:\n  %s", len(missing), strings.Join(missing, "\n  "))
	}
	return nil
}
