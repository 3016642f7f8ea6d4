package platform_test

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/platform"
	"github.com/carillonhq/carillon/internal/web"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"PlatformOverview": reflect.TypeFor[platform.Overview](),
		"TenantUse":        reflect.TypeFor[platform.TenantUse](),
		"TenantUsePage":    reflect.TypeFor[web.ListAnswer[platform.TenantUse]](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
