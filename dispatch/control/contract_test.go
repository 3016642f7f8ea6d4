package control_test

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/control"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"BackfillParams":    reflect.TypeFor[control.BackfillParams](),
		"BackfillPlan":      reflect.TypeFor[control.BackfillPlan](),
		"DeadReplayParams":  reflect.TypeFor[control.DeadReplayParams](),
		"DeadReplayPreview": reflect.TypeFor[control.DeadReplayPreview](),
		"TriggerParams":     reflect.TypeFor[control.TriggerParams](),
		"HaltParams":        reflect.TypeFor[control.HaltParams](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
