package expect_test

import (
	"testing"

	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.MainNoLeaks(m) }
