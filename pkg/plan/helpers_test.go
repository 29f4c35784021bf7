package plan

import planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"

func text(s string) *planv1.JsonText { return &planv1.JsonText{Text: s} }
