package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/internal/keyset"
)

// sealing is a keyset as a setting. Without a keyset secrets are stored in the clear.
type sealing struct {
	given  bool
	keyset *keyset.Keyset
}

func (s *sealing) UnmarshalText(text []byte) (err error) {
	s.given = true
	if s.keyset, err = keyset.Parse(string(text)); err != nil {
		return fmt.Errorf("%w: carillon keyset makes one", err)
	}
	return nil
}

type keysetSettings struct {
	Keyset sealing `env:"CARILLON_KEYSET" secret:"true" help:"a keyset to which a new key is added; without it a new keyset is made"`
}

func (p program) keyset() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "keyset",
		Short: "Make a keyset that encrypts secrets, or add a key to one",
		Long: `Prints a new keyset for CARILLON_KEYSET, with which carillon serve encrypts the
signing secrets and the header values of endpoints before it stores them. If CARILLON_KEYSET
is set, it prints that keyset with a new key. The new key encrypts from then on, and the old
keys still decrypt.

Keep it apart from the database and its backups, and do not lose it: nothing else can decrypt
the secrets. All processes need the same keyset. A process that lacks a key holds the ticks
that it cannot sign; none is lost.`,
		Example: `  export CARILLON_KEYSET=$(carillon keyset)    # the first
  export CARILLON_KEYSET=$(carillon keyset)    # the same with a new key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := read[keysetSettings](p, cmd)
			if err != nil {
				return err
			}
			k, err := s.fresh()
			if err != nil {
				return err
			}
			text, err := k.Text()
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(p.stdout, map[string]string{"keyset": text})
			}
			_, err = fmt.Fprintln(p.stdout, text)
			return err
		},
	}
	flags[keysetSettings](cmd)
	jsonFlags(cmd, &asJSON)
	return cmd
}

func (s keysetSettings) fresh() (*keyset.Keyset, error) {
	if s.Keyset.keyset == nil {
		return keyset.New()
	}
	return s.Keyset.keyset.Rotated()
}
