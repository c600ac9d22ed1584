// Command bootstrap runs functions/rotate on AWS Lambda's provided.al2023 runtime.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/clusterpass/clusterpass/functions/rotate"
	"github.com/clusterpass/clusterpass/shared/config"
)

const about = "Clusterpass rotate function: renews the token in a member cluster's secret. AWS Secrets Manager " +
	"calls it."

func main() {
	cfg := &rotate.Config{}
	config.Main(about, cfg, func() error {
		r, err := cfg.Open(context.Background())
		if err != nil {
			return err
		}
		lambda.Start(r.Handle)
		return nil
	})
}
