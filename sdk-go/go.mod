module github.com/carillonhq/carillon/sdk-go

go 1.25
