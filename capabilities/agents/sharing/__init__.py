"""Tools and toolkits as files: kept in step with a folder, exported, imported, and published to other organisations."""
