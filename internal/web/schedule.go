package web

import (
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// ScheduleName returns the path parameters workflow and key.
func ScheduleName(c echo.Context) (workflow, key string, err error) {
	workflow, workflowErr := Param(c, "workflow")
	key, keyErr := Param(c, "key")
	return workflow, key, fault.Join(workflowErr, keyErr)
}
