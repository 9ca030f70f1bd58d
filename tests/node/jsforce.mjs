// An ordinary jsforce program, for tests/sandbox/test_jsforce.py: it tells on stdout, as JSON, what each call came to.

import { createRequire } from "node:module";

const { Connection } = createRequire(`${process.env.NODE_FOLDER}/index.js`)("jsforce");
const { INSTANCE_URL: url, CLIENT_ID: clientId, CLIENT_SECRET: clientSecret, SF_USERNAME, SF_PASSWORD } = process.env;
const told = {};
const refusal = async (work) => {
  try {
    return { unexpected: await work() };
  } catch (error) {
    return { name: error.name, code: error.errorCode, message: error.message };
  }
};

const connection = new Connection({ instanceUrl: url, version: "65.0", oauth2: { loginUrl: url, clientId, clientSecret } });
const who = await connection.authorize({ grant_type: "client_credentials" });
told.login = { user: who.id, organization: who.organizationId, username: (await connection.identity()).username };
const other = new Connection({ instanceUrl: url, version: "65.0", oauth2: { loginUrl: url, clientId, clientSecret } });
told.password = (await other.login(SF_USERNAME, SF_PASSWORD)).id;
told.wrongPassword = await refusal(() => other.login(SF_USERNAME, "wrong"));
told.soap = await refusal(() => new Connection({ loginUrl: url, version: "60.0" }).login(SF_USERNAME, SF_PASSWORD));

const accounts = connection.sobject("Account");
const made = await accounts.create({ Name: "Acme", Erp_Number__c: "E-1" });
told.created = made;
told.retrieved = (await accounts.retrieve(made.id)).Name;
told.updated = await accounts.update({ Id: made.id, Name: "Acme Corp" });
told.several = (await accounts.create([{ Name: "One" }, { Description: "no name" }, { Name: "Two" }])).map((result) => result.success);
told.rolledBack = (await accounts.create([{ Name: "Three" }, { Description: "no name" }], { allOrNone: true })).map((result) => result.errors[0].statusCode);
told.missing = await refusal(() => accounts.create({}));
told.wrongField = await refusal(() => accounts.update({ Id: made.id, Colour: "red" }));
told.absent = await refusal(() => accounts.retrieve("001000000000000AAA"));

const quotes = connection.sobject("Quote");
const key = "led_Q-2026-0042_v1";
told.upserted = [
  await quotes.upsert({ Quotebot_Key__c: key, Name: "First" }, "Quotebot_Key__c"),
  await quotes.upsert({ Quotebot_Key__c: key, Name: "Second" }, "Quotebot_Key__c"),
].map(({ success, created }) => ({ success, created }));
await accounts.create({ Name: "Twin", Erp_Number__c: "E-1" });
told.twins = await refusal(() => accounts.upsert({ Erp_Number__c: "E-1", Name: "Which?" }, "Erp_Number__c"));

await accounts.create(Array.from({ length: 200 }, (_, number) => ({ Name: `Bulk ${number}` })));
await accounts.create(Array.from({ length: 10 }, (_, number) => ({ Name: `Bulk ${number + 200}` })));
const page = await connection.query("SELECT Id, Name FROM Account WHERE Name LIKE 'Bulk%'", { headers: { "Sforce-Query-Options": "batchSize=200" } });
const rest = await connection.queryMore(page.nextRecordsUrl);
told.query = { total: page.totalSize, first: page.records.length, done: [page.done, rest.done], rest: rest.records.length };
told.found = (await accounts.find({ Name: { $like: "Acme%" } }, "Id, Name").sort("-Name").limit(5)).map((record) => record.Name);
told.counted = (await connection.query("SELECT COUNT() FROM Account WHERE Name LIKE 'Bulk%'")).totalSize;
told.malformed = await refusal(() => connection.query("SELECT Id FROM Account WHERE"));
told.describe = (await quotes.describe()).fields.find(({ name }) => name === "Quotebot_Key__c").externalId;
told.global = (await connection.describeGlobal()).sobjects.map(({ name }) => name);

const node = (referenceId, sobject, body) => ({ method: "POST", url: `/services/data/v65.0/sobjects/${sobject}`, referenceId, body });
const graph = (...compositeRequest) => connection.requestPost("/composite/graph", { graphs: [{ graphId: "1", compositeRequest }] });
const quote = node("q", "Quote", { Name: "Graph", Quotebot_Key__c: "graph-1" });
const line = node("l", "QuoteLineItem", { QuoteId: "@{q.id}", Quantity: 2, UnitPrice: 1.5 });
const codes = (answer) => answer.graphs[0].graphResponse.compositeResponse.map(({ body }) => body[0]?.errorCode ?? null);
told.graph = [codes(await graph(quote, node("b", "QuoteLineItem", { QuoteId: "@{q.id}" }))), codes(await graph(quote, line)), codes(await graph(quote, line))];

const file = await connection.sobject("ContentVersion").create({ Title: "Quote", PathOnClient: "quote.pdf", VersionData: Buffer.from("%PDF").toString("base64"), FirstPublishLocationId: made.id });
told.file = (await connection.query(`SELECT ContentDocument.Title FROM ContentDocumentLink WHERE LinkedEntityId = '${made.id}'`)).records.map((record) => record.ContentDocument.Title);
told.bytes = (await connection.request(`/sobjects/ContentVersion/${file.id}/VersionData`)).toString();

told.deleted = (await accounts.destroy(made.id)).success;
await other.logout();
const stranger = new Connection({ instanceUrl: url, version: "65.0", accessToken: "00D!no-such-session" });
told.expired = await refusal(() => stranger.query("SELECT Id FROM Account"));
process.stdout.write(JSON.stringify(told));
