package web

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"github.com/go-playground/validator/v10"

	"github.com/carillonhq/carillon/internal/fault"
)

var saneName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// IsName reports whether s can name a workflow, an endpoint, a calendar or a tenant: 1 to 128 of A-Z a-z 0-9 . _ -
func IsName(s string) bool { return saneName.MatchString(s) }

// embedded is the validator's name for an embedded struct. It never becomes a part of a JSON pointer.
const embedded = "\x00"

// structTags checks validate tags. It knows the validator's own tags, and `name` for the name of a workflow, an endpoint or a calendar.
var structTags = func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			return embedded
		}
		return name
	})
	if err := v.RegisterValidation("name", func(fl validator.FieldLevel) bool { return IsName(fl.Field().String()) }); err != nil {
		panic(err)
	}
	return v
}()

// tagged reports whether a type, or a type within it, has a validate tag. It caches the result.
func tagged(t reflect.Type) bool {
	if known, ok := taggedTypes.Load(t); ok {
		return known.(bool)
	}
	found := hasTag(t, map[reflect.Type]bool{})
	taggedTypes.Store(t, found)
	return found
}

var taggedTypes sync.Map // reflect.Type to bool

func hasTag(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return hasTag(t.Elem(), seen)
	case reflect.Interface:
		return true // it may hold anything
	case reflect.Struct:
		for f := range t.Fields() {
			if f.Tag.Get("validate") != "" || hasTag(f.Type, seen) {
				return true
			}
		}
	}
	return false
}

func validate(v any) error {
	t := reflect.Indirect(reflect.ValueOf(v))
	if t.IsValid() && !tagged(t.Type()) {
		return nil
	}
	var err error
	switch t.Kind() {
	case reflect.Struct:
		err = structTags.Struct(v)
	case reflect.Slice, reflect.Array, reflect.Map:
		if inner := t.Type().Elem().Kind(); inner == reflect.Struct {
			err = structTags.Var(t.Interface(), "dive")
		}
	}
	bad, ok := errors.AsType[validator.ValidationErrors](err)
	if !ok {
		return err
	}
	fields := make([]fault.Field, len(bad))
	for i, b := range bad {
		fields[i] = fault.Field{Pointer: pointerOf(b.Namespace(), t.Kind() == reflect.Struct), Code: codeOf(b), Detail: detailOf(b)}
	}
	return fault.Fields(fields...)
}

// pointerOf returns the JSON pointer of a validator's namespace, such as Params.spec.at[2]. It drops the type's name.
func pointerOf(namespace string, named bool) string {
	var b strings.Builder
	for i, part := range strings.Split(namespace, ".") {
		name, indexes, _ := strings.Cut(part, "[")
		if (i > 0 || !named) && name != "" && name != embedded {
			b.WriteString("/" + Pointer(name))
		}
		for index := range strings.SplitSeq(indexes, "[") {
			if index != "" {
				b.WriteString("/" + Pointer(strings.TrimSuffix(index, "]")))
			}
		}
	}
	return b.String()
}

func codeOf(f validator.FieldError) string {
	switch f.Tag() {
	case "required", "required_with", "required_without", "required_if":
		return "required"
	case "min", "max", "gte", "lte", "gt", "lt", "len":
		return "out_of_range"
	}
	return "invalid"
}

func detailOf(f validator.FieldError) string {
	unit := ""
	switch f.Kind() {
	case reflect.String:
		unit = " characters"
	case reflect.Slice, reflect.Array, reflect.Map:
		unit = " elements"
	}
	switch f.Tag() {
	case "required", "required_with", "required_without", "required_if":
		return "is required"
	case "min", "gte":
		return fmt.Sprintf("must be at least %s%s", f.Param(), unit)
	case "max", "lte":
		return fmt.Sprintf("must be at most %s%s", f.Param(), unit)
	case "gt":
		return fmt.Sprintf("must be more than %s%s", f.Param(), unit)
	case "lt":
		return fmt.Sprintf("must be less than %s%s", f.Param(), unit)
	case "len":
		return fmt.Sprintf("must be exactly %s%s", f.Param(), unit)
	case "oneof":
		return "must be one of " + strings.Join(strings.Fields(f.Param()), ", ")
	case "name":
		return "must be 1 to 128 letters, digits, dots, underscores and hyphens"
	case "unique":
		return "must not contain duplicates"
	}
	return "breaks the rule " + f.Tag()
}
