package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/migrations"
)

type migrateSettings struct {
	DatabaseURL databaseURL `env:"DATABASE_URL,required" secret:"true" flag:"database-url" value:"URL" help:"the PostgreSQL to bring up to date, as its owner: postgres://user:password@host:5432/database"`
	Cell        *int        `env:"CARILLON_CELL" flag:"cell" value:"N" help:"the number of this installation, 0 to 511: installations with different numbers never have the same id; a new database has 0"`
}

func (p program) migrate() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring a database up to date",
		Long: `Makes and changes Carillon's tables and River's in the database that DATABASE_URL names.
It can run at any time, in several processes at once, and while an older Carillon serves.`,
		Example: `  DATABASE_URL=postgres://carillon:secret@db:5432/carillon carillon migrate`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := read[migrateSettings](p, cmd)
			if err != nil {
				return err
			}
			applied, err := migrations.Up(cmd.Context(), string(s.DatabaseURL), migrations.Options{Cell: s.Cell})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.stdout, map[string]int64{"applied": int64(applied), "version": migrations.Latest()})
			}
			_, err = fmt.Fprintf(p.stdout, "%d applied; the database is at version %d\n", applied, migrations.Latest())
			return err
		},
	}
	flags[migrateSettings](cmd)
	jsonFlags(cmd, &asJSON)
	return cmd
}
