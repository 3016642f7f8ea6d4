package main

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/cobra"
)

// A command's settings are a struct whose fields bear where they come from:
//
//	env         the environment variable
//	envDefault  the value where neither it nor the flag is given
//	flag        the flag, which wins over the variable; none: the variable alone, as for secrets, which others may
//	            read off a command line
//	value       what stands for the value in the help, such as ADDRESS
//	help        what it means
//
// What a value may be is its type's to say, in UnmarshalText; what several may be together, the struct's, in faults.

// setting is one field of such a struct.
type setting struct {
	field, env, fallback, flag, value, help string
	boolean                                 bool
}

func (s setting) String() string {
	if s.flag == "" {
		return s.env
	}
	return s.env + " (--" + s.flag + ")"
}

func settingsOf(t reflect.Type) []setting {
	var list []setting
	for f := range t.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Tag.Get("env") == "" {
			list = append(list, settingsOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
		list = append(list, setting{
			field:    f.Name,
			env:      name,
			fallback: f.Tag.Get("envDefault"),
			flag:     f.Tag.Get("flag"),
			value:    f.Tag.Get("value"),
			help:     f.Tag.Get("help"),
			boolean:  f.Type.Kind() == reflect.Bool,
		})
	}
	return list
}

// given is the text of a flag, which read makes a value of.
type given struct{ text, value string }

func (g *given) String() string        { return g.text }
func (g *given) Type() string          { return g.value }
func (g *given) Set(text string) error { g.text = text; return nil }

// flags gives a command the flags of settings T, and names the variables in its help.
func flags[T any](cmd *cobra.Command) {
	var variables strings.Builder
	for _, s := range settingsOf(reflect.TypeFor[T]()) {
		switch {
		case s.flag == "":
			meaning := s.help
			if s.fallback != "" {
				meaning += " (default " + s.fallback + ")"
			}
			fmt.Fprintf(&variables, "  %-28s %s\n", s.env, meaning)
		case s.boolean:
			cmd.Flags().Bool(s.flag, false, s.help+" ["+s.env+"]")
		default:
			cmd.Flags().Var(&given{s.fallback, s.value}, s.flag, s.help+" ["+s.env+"]")
		}
	}
	if variables.Len() > 0 {
		cmd.Long += "\n\nSettings that come from the environment only:\n" + strings.TrimRight(variables.String(), "\n")
	}
}

// read returns the settings of a command. Its error tells all that is wrong with them at once.
func read[T any](p program, cmd *cobra.Command) (T, error) {
	settings := settingsOf(reflect.TypeFor[T]())
	values := map[string]string{}
	for _, s := range settings {
		value := p.getenv(s.env)
		if f := cmd.Flags().Lookup(s.flag); s.flag != "" && f.Changed {
			value = f.Value.String()
		}
		if value != "" {
			values[s.env] = value
		}
	}
	got, err := env.ParseAsWithOptions[T](env.Options{Environment: values})
	var lines []string
	all, _ := errors.AsType[env.AggregateError](err) // it returns no other
	for _, e := range all.Errors {
		lines = append(lines, explain(settings, e))
	}
	if whole, ok := any(got).(interface{ faults() []string }); ok {
		lines = append(lines, whole.faults()...)
	}
	switch len(lines) {
	case 0:
		return got, nil
	case 1:
		return got, misuse{errors.New(lines[0])}
	}
	return got, misuse{fmt.Errorf("%d settings cannot be used:\n  %s", len(lines), strings.Join(lines, "\n  "))}
}

func explain(settings []setting, err error) string {
	missing, isMissing := errors.AsType[env.VarIsNotSetError](err)
	wrong, isWrong := errors.AsType[env.ParseError](err)
	for _, s := range settings {
		if isMissing && s.env == missing.Key {
			return fmt.Sprintf("%s is needed: %s", s, s.help)
		}
		if isWrong && s.field == wrong.Name {
			return fmt.Sprintf("%s: %v", s, wrong.Err)
		}
	}
	return err.Error()
}
