import httpx


async def test_a_scope_begins_with_an_admins_first_write(admin: httpx.AsyncClient, scope: str) -> None:
    assert (await admin.get(f"/v1/scopes/{scope}/")).status_code == 404
    assert (await admin.post(f"/sync/{scope}/devices/mac/ops", content=b"[]")).json() == {"accepted": 0, "deduped": 0}
    answer = await admin.get(f"/v1/scopes/{scope}/")
    assert answer.json()["frontier"] == {}
